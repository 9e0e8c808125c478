"""What the processes of a dataflow have said."""
