"""Where segments live: the contract of a store, and the store on a directory."""
