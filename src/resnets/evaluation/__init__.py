"""Testing and using trained networks: crops, ensembles, scores, predictions, class activation maps."""
