import{b as r}from"./chunk-YSF3IREE.js";import{m18 as e}from"./core-6KFC3WKS.js";var o=e.default;function u({params:t}){return r(o,{run:t.run})}export{u as default};
