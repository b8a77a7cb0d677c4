"""What loaders do in Python: transforms, copies to a device, and the batches of text and of images with boxes."""
