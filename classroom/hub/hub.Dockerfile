# The hub itself, which starts a container for each student.
FROM quay.io/jupyterhub/jupyterhub:5
RUN pip install --no-cache-dir dockerspawner jupyterhub-nativeauthenticator jupyterhub-idle-culler
COPY jupyterhub_config.py /srv/jupyterhub/
