"""What each panel says: pure functions from a scene (frame, samples, moment) to frozen values that templates print."""
