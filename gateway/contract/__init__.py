"""The only words that the planes share. Pure values, validated whole, applied whole; versioned and signed on the way."""
