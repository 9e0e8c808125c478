"""The demo: real flights through two chained dataflows, a worker killed half way, the outputs counted afterwards."""
