"""What people do to simulated dataflows that takes more than an edit."""
