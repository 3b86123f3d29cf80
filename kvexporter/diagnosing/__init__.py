"""`kvexporter diagnose`: old journals and logs of any build through the model's own books, and what they come to."""
