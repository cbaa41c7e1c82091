// Removed as soon as the layer has a source.
