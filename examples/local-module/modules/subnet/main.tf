variable "zone" {
  type = string
}

resource "terraform_data" "subnet" {
  input = var.zone
}

output "zone" {
  value = terraform_data.subnet.output
}
