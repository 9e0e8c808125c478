"""The master of a dataflow: state.py decides, the shell acts."""
