# A module of a public repository, at a tag. The machine that runs it needs git.
module "label" {
  source = "git::https://github.com/cloudposse/terraform-null-label.git?ref=0.25.0"

  namespace = "acme"
  name      = "network"
}

resource "terraform_data" "network" {
  input = module.label.id
}

output "id" {
  value = module.label.id
}
