"""The private vocabulary: count words under a bound, release them with noise, train WordPiece on the release."""
