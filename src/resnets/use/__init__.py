"""Networks at work: weights taken in, pictures recognised, networks handed on."""
