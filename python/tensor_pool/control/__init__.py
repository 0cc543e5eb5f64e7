"""Control: who watches over streams, and how services are told what to do."""
