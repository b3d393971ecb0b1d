# A root module that calls a module beside its environment's directory, as many repositories have it.
module "network" {
  source = "../../modules/network"

  name  = "prod"
  zones = ["a", "b"]
}

output "subnets" {
  value = module.network.subnets
}
