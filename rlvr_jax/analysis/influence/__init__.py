"""What a step's batch, one of its problems or a part of its reward did to the score."""
