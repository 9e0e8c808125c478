"""The commands of `scribengin`, a file a subject. Each imports what it needs when it runs: `--help` is quick."""
