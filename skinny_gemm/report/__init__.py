"""The review pack: a design review as one PDF, its pages, data and provenance."""
