//! The forward pass, the expert cache and the memory budget of Gemma 4 mixture-of-experts models.
