# The state is kept by a server of backend http. GitLab is one. The address stands in workspace.yaml.
terraform {
  backend "http" {}
}

resource "terraform_data" "network" {
  input = "10.20.0.0/16"
}

resource "terraform_data" "gateway" {
  input = "10.20.0.1"
}
