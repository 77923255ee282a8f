"""One step of a sparse autoencoder, compared with SAELens and dictionary_learning."""
