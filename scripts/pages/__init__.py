"""The pages that are written from code, catalog and specifications. Stories around them are written by hand."""
