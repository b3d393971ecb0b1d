# Needs no account and no provider from a registry: terraform_data is built into both engines.
terraform {
  required_version = ">= 1.4"
}

variable "greeting" {
  type    = string
  default = "hello"
}

variable "replicas" {
  type    = number
  default = 2
}

resource "terraform_data" "network" {
  input = { cidr = "10.20.0.0/16" }
}

resource "terraform_data" "server" {
  count            = var.replicas
  input            = "${var.greeting} from server ${count.index} in ${terraform_data.network.output.cidr}"
  triggers_replace = [terraform_data.network.id]
}

output "greetings" {
  value = [for s in terraform_data.server : s.output]
}

output "cidr" {
  value = terraform_data.network.output.cidr
}

output "password" {
  description = "Sensitive: Dayfly reports its name and never its value."
  value       = "correct horse battery staple"
  sensitive   = true
}
