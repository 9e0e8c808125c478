"""Transcripts of what a master decides."""
