"""JupyterHub for 40 students on a machine with 16 cores and 64 GB; docs/instructor.md says why."""

c = get_config()  # noqa: F821

c.JupyterHub.bind_url = "http://:8000"
c.JupyterHub.hub_ip = "0.0.0.0"
c.JupyterHub.hub_connect_ip = "flash-ladder-hub"
c.JupyterHub.db_url = "sqlite:////data/hub.sqlite"
c.JupyterHub.cookie_secret_file = "/data/cookie_secret"
# A room opens its browsers at once.
c.JupyterHub.concurrent_spawn_limit = 10
c.JupyterHub.active_server_limit = 45

# Students choose a name and a password; the instructor admits them at /hub/authorize.
c.JupyterHub.authenticator_class = "native"
c.Authenticator.admin_users = {"instructor"}
c.Authenticator.allow_all = True

c.JupyterHub.spawner_class = "dockerspawner.DockerSpawner"
c.DockerSpawner.image = "flash-ladder-student"
c.DockerSpawner.network_name = "flash-ladder-class"
c.DockerSpawner.use_internal_ip = True
c.DockerSpawner.remove = True
c.DockerSpawner.volumes = {"flash-ladder-{username}": "/home/student"}
c.Spawner.default_url = "/lab/tree/lessons/00_attention.ipynb"
c.Spawner.start_timeout = 120
# A limit, not a reservation: a check peaks for seconds, and few students check at the same moment.
c.Spawner.mem_limit = "2G"
# A check is mostly one core's work; two let the emulator's threads help.
c.Spawner.cpu_limit = 2

# Idle servers are stopped after an hour.
c.JupyterHub.load_roles = [
    {
        "name": "cull",
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
        "services": ["cull"],
    }
]
c.JupyterHub.services = [
    {"name": "cull", "command": ["python3", "-m", "jupyterhub_idle_culler", "--timeout=3600"]}
]
