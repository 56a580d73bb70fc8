"""Plans of runs and where they are carried out: this machine, Ray or Slurm."""
