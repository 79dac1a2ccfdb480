"""What is shown to people: plots, and reports in HTML."""
