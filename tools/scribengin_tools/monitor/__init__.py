"""`scribengin monitor`: one screen for one or many dataflows."""
