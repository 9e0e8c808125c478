"""`scribengin web`: one page for all dataflows of a registry. Only this package knows starlette and uvicorn."""
