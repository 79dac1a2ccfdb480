"""What tests share: cases, files, and tests of a mean."""
