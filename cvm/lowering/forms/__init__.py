"""The forms of real tensors during lowering, and the emission of ops that compute them."""
