# A file outside the workspace, for somebody to change behind the engine's back.
terraform {
  required_providers {
    local = {
      source  = "hashicorp/local"
      version = ">= 1.4.0"
    }
  }
}

variable "path" {
  type        = string
  description = "Where the file is to lie; the engine's user must be able to write there."
  default     = "/tmp/dayfly-drift.txt"
}

resource "local_file" "note" {
  filename        = var.path
  content         = "as planned\n"
  file_permission = "0666"
}

output "path" {
  value = local_file.note.filename
}
