"""Model files: each format is checked before TVM sees it."""
