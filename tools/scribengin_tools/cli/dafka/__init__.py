"""Commands about Dafka, the brokerless live path."""
