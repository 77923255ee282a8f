"""What every long job needs: config, command line, mesh, checkpoints, metrics.

It knows neither reinforcement learning nor autoencoders; both are built on it.
"""
