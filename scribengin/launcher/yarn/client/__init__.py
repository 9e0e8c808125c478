"""YARN as its users see it: applications, their logs, its nodes' pages."""
