"""The work that every side does. Peers import it too, so it only needs NumPy."""

import dataclasses

import numpy as np

_WIDTH_OVER_RANK = (
    4  # activations lie near a subspace of width / 4, like residual streams
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """One step of a BatchTopK autoencoder with random weights on activations."""

    width: int  # D
    latents: int  # Z
    k: int = 32
    batch_size: int = 4096  # B

    def activations(self) -> np.ndarray:
        """Returns the batch that every step of every side sees: float32 [B, D]."""
        draw = np.random.default_rng(0)
        rank = self.width // _WIDTH_OVER_RANK
        basis = draw.standard_normal((rank, self.width), np.float32)
        inside = draw.standard_normal((self.batch_size, rank), np.float32) @ basis
        noise = 0.1 * draw.standard_normal((self.batch_size, self.width), np.float32)
        return inside / np.sqrt(np.float32(rank)) + noise

    def matmul_flops(self) -> dict[str, float]:
        """Returns the FLOPs of a step's matrix products.

        `dense`: encoder and decoder, once forward and twice backward, without the
        gradient of the activations. `needed`: the whole encoder forward, and the rest
        only for the k latents per token that are not 0.
        """
        one = 2.0 * self.batch_size * self.width * self.latents
        return {"dense": 5 * one, "needed": one + 4 * one * self.k / self.latents}


JOBS = {
    "tiny": Job(width=32, latents=128, k=4, batch_size=256),
    "D256": Job(width=256, latents=16 * 256),
    "D1536": Job(width=1536, latents=16 * 1536),
}
