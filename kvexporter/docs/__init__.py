"""Makes the reference documents from the definitions in the code: `python -m kvexporter.docs`."""
