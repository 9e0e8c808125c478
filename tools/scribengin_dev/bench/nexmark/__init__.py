"""Nexmark: people, auctions and bids, and the queries over them that Spark can stream."""
