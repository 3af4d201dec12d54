"""Scripts for developers: they write type stubs, pages and pictures of operators from the descriptions."""
