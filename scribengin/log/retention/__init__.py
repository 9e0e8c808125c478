"""What a log gives up: truncation, purges, holds against them, compressed copies."""
