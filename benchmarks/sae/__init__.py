"""One step of a sparse autoencoder, beside SAELens and dictionary_learning."""
