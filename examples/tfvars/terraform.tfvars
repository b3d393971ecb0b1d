region   = "eu-central-1"
replicas = 1
