"""The pages of docs/reference, made from what they describe: `python -m scribengin_dev.reference` writes them."""
