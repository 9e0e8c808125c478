"""The soak test: a chain under a steady load of tracking records, and a seeded schedule of harm and of edits."""
