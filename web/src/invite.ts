/** Behind a proxy the service may not know the address by which people reach it. Their browser knows it. */
const command = document.querySelector('#command');
if (command !== null) command.textContent = command.textContent.replace(/https?:\/\/[^/]*/, location.origin);
