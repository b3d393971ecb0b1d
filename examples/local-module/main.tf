# A root module that calls a module below it, twice.
module "subnet" {
  source   = "./modules/subnet"
  for_each = toset(["a", "b"])

  zone = each.key
}

output "zones" {
  value = [for s in module.subnet : s.zone]
}
