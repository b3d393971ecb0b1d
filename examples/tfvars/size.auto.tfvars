# Read after terraform.tfvars, so this value wins.
replicas = 3
