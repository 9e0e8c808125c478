"""What proxies and their clients say to each other: the bytes of requests and answers."""
