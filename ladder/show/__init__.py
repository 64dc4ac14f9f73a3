"""Results as tables, pages and pictures."""
