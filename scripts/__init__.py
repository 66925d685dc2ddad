"""What makes the project's texts, pages and figures; no part of the package."""
